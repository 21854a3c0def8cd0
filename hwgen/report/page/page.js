"use strict";
// What moves on the page: the drawing of the network (laid out by dagre), charts (plotly.js), and words explained.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 2 });
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const short = (text, most = 22) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const phone = () => window.innerWidth < 760;

  // Words and cells are explained in one box, next to the pointer or under the word that has the focus.
  const tip = at("tip");
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 12, window.innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > window.innerHeight ? Math.max(8, y - box.height - 10) : y + 18}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  for (const word of document.querySelectorAll("[data-tip]")) {
    const below = () => {
      const box = word.getBoundingClientRect();
      word.setAttribute("aria-describedby", "tip");
      showTip(word.dataset.tip, box.left - 12, box.bottom - 12);
    };
    word.addEventListener("mouseenter", below);
    word.addEventListener("focus", below);
    word.addEventListener("mouseleave", hideTip);
    word.addEventListener("blur", hideTip);
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  // Charts: made again whenever colours or sizes change.
  const charts = new Map();
  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: phone() ? false : "zoom",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("ink") },
    margin: { l: 8, r: 14, t: 8, b: 44 }, showlegend: false, hoverlabel: { align: "left" },
    ...more,
  });
  const axis = (title, more = {}) => ({
    title: { text: title, font: { size: 12 }, standoff: 10 }, gridcolor: colour("line"), zerolinecolor: colour("line"),
    linecolor: colour("line"), automargin: true, ...(phone() ? { nticks: 4 } : {}), ...more,
  });
  const below = { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0 };
  const chart = (id, make, after) => { if (at(id)) charts.set(id, { make, after, drawn: false }); };
  const draw = (id) => {
    const entry = charts.get(id);
    if (!entry) return;
    const { traces, layout: shape } = entry.make();
    Plotly.react(at(id), traces, shape, { displayModeBar: false, responsive: true });
    if (!entry.drawn && entry.after) entry.after(at(id));
    entry.drawn = true;
  };
  const drawAll = () => { for (const id of charts.keys()) draw(id); };

  // Resources: a bar for each of a board's resources, a piece of it for each layer; below it Yosys' own.
  const design = data.design;
  const hues = ["#2f7fc1", "#e0862a", "#3f9f7f", "#b5539c", "#8a7a2f", "#5d6bc0", "#c25b56", "#4aa3b8"];
  if (design) {
    const keys = Object.keys(design.resources.names);
    document.querySelectorAll("#resources tbody th").forEach((name, place) => {
      if (place >= design.resources.layers.length) return;
      const chip = document.createElement("i");
      chip.className = "chip";
      chip.style.background = hues[place % hues.length];
      name.prepend(chip);
    });
    const share = (value, key) => 100 * value / design.resources.board[key];
    chart("chart-resources", () => {
      const rows = keys.map((key) => design.resources.names[key]);
      const measured = data.synthesis ? data.synthesis.layers : [];
      const traces = design.resources.layers.map((layer, place) => ({
        type: "bar", orientation: "h", name: layer.name, y: rows, x: keys.map((key) => share(layer[key], key)),
        customdata: keys.map((key) => [layer.name, number(layer[key]), "estimated"]),
        marker: { color: hues[place % hues.length], line: { color: colour("paper"), width: 0.7 } }, offsetgroup: "a",
      }));
      measured.forEach((layer) => traces.push({
        type: "bar", orientation: "h", name: `${layer.name} (Yosys)`, y: rows, x: keys.map((key) => share(layer[key], key)),
        customdata: keys.map((key) => [layer.name, number(layer[key]), "by Yosys"]), offsetgroup: "b",
        marker: {
          color: hues[design.resources.layers.findIndex((each) => each.name === layer.name) % hues.length] || colour("soft"),
          opacity: 0.55, line: { color: colour("paper"), width: 0.7 },
        },
      }));
      traces.forEach((trace) => { trace.hovertemplate = "%{customdata[0]}: %{customdata[1]} %{y}, %{x:.1f}% of the board (%{customdata[2]})<extra></extra>"; });
      return {
        traces,
        layout: layout({
          barmode: "stack", height: measured.length ? 300 : 240, bargap: 0.35,
          xaxis: axis("% of the board", { rangemode: "tozero" }), yaxis: axis("", { autorange: "reversed", showgrid: false }),
          shapes: [{ type: "line", x0: 100, x1: 100, yref: "paper", y0: 0, y1: 1, line: { color: colour("mark"), width: 1.5, dash: "dash" } }],
        }),
      };
    });
    chart("chart-traffic", () => {
      const groups = design.traffic, names = groups.map((group) => short(group.name, 34));
      const bar = (name, key, hue, set) => ({
        type: "bar", orientation: "h", name, y: names, x: groups.map((group) => (key === "alone" ? group.alone : group.moved[key] || 0)), offsetgroup: set,
        marker: { color: hue }, hovertemplate: `%{y}: %{x:,} bytes ${name}<extra></extra>`,
      });
      return {
        traces: [
          ...Object.keys(groups[0].moved).map((key, place) => bar(key, key, colour(["first", "second", "buffer", "room"][place % 4]), "a")),
          bar(design.engine ? "maps once" : "maps, if not fused", "alone", colour("done"), "b"),
        ],
        layout: layout({
          barmode: "stack", showlegend: true, legend: below, margin: { l: 8, r: 14, t: 34, b: 44 },
          height: 130 + (groups.length > 8 ? 30 : 46) * groups.length, xaxis: axis("bytes per frame"), yaxis: axis("", { autorange: "reversed", showgrid: false }),
        }),
      };
    });
    chart("chart-roofline", () => {
      const line = design.roofline, points = line.points, memory = line.memory_gb_s;
      const low = Math.min(0.5, ...points.map((point) => point.x)) / 2, corner = line.peak / memory;
      const high = Math.max(corner * 4, 2 * line.used / (line.port_gb_s || memory), ...points.map((point) => point.x * 2));
      const of = (kind, name, symbol, hue, size) => {
        const mine = points.filter((point) => point.kind === kind);
        return {
          type: "scatter", mode: "markers", name, x: mine.map((point) => point.x), y: mine.map((point) => point.rate),
          text: mine.map((point) => point.name), marker: { symbol, color: hue, size, line: { color: colour("paper"), width: 1 } },
          hovertemplate: "%{text}: %{y:.3g} GMAC/s at %{x:.3g} MAC a byte<extra></extra>",
        };
      };
      const roof = (peak, slope, name, dash) => ({
        type: "scatter", mode: "lines", name, x: [low, peak / slope, high], y: [low * slope, peak, peak],
        line: { color: colour("soft"), dash, width: 1.6 }, hovertemplate: `${name}: %{y:.3g} GMAC/s<extra></extra>`,
      });
      return {
        traces: [
          roof(line.peak, memory, "the board", "solid"),
          roof(line.used, line.port_gb_s || memory, line.port_gb_s ? "the engine and its port" : "the plan's multipliers", "dot"),
          of("layer", line.port_gb_s ? "a layer" : "a layer, without fusion", "circle", colour("second"), 8),
          of("group", "the plan", "diamond", colour("first"), 13),
        ],
        layout: layout({
          height: 420, showlegend: true, legend: below, margin: { l: 8, r: 14, t: 48, b: 48 },
          xaxis: axis("multiply-adds per byte off chip", { type: "log", dtick: 1 }), yaxis: axis("GMAC/s", { type: "log", dtick: 1 }),
        }),
      };
    });
  }

  // The timeline: a band of each layer, cut into cells that are filled in proportion to what the layer does.
  const times = data.times;
  const view = () => times.views.find((each) => each.key === (document.querySelector("input[name=view]:checked") || {}).value) || times.views[0];
  const KINDS = ["work", "input", "room", "buffer", "done"];
  const ORDER = { work: 0, buffer: 1, room: 2, input: 3, done: 4 };
  const says = {
    work: () => "works", input: (whom) => `waits for input from ${whom}`, room: (whom) => `waits for room towards ${whom}`,
    buffer: () => "waits for its own buffer", done: () => "has finished its frames", turn: () => "waits for its group's turn",
  };
  const described = (state) => state.says || says[state.kind](state.whom);
  const bytes = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const height = (rows) => Math.max(120, 62 + rows * (rows > 60 ? 11 : rows > 24 ? 17 : 24));
  const size = (rows) => (rows > 60 ? 8 : rows > 24 ? 10 : 12);
  const cells = new Map();
  const shares = (shown) => {
    if (!cells.has(shown.key)) {
      cells.set(shown.key, shown.layers.map((layer) => layer.states.filter((state) => state.shares).map((state) => ({ ...state, shares: bytes(state.shares) }))
        .sort((one, other) => ORDER[one.kind] - ORDER[other.kind])));
    }
    return cells.get(shown.key);
  };
  const PART = (rows) => (rows > 100 ? 3 : rows > 40 ? 5 : 8);
  if (times && times.views.length) {
    chart("chart-times", () => {
      const shown = view(), layers = shown.layers, bins = shown.edges.length - 1, part = PART(layers.length);
      const z = [];
      shares(shown).forEach((states, place) => {
        const rows = Array.from({ length: part }, () => new Array(bins).fill(null));
        const count = states.length ? states[0].shares.length : 0;
        for (let bin = 0; bin < count; bin += 1) {
          let done = 0;
          for (const state of states) {
            const from = Math.round(part * done / 255);
            done += state.shares[bin];
            for (let row = from; row < Math.round(part * done / 255); row += 1) rows[row][layers[place].first + bin] = KINDS.indexOf(state.kind);
          }
        }
        z.push(new Array(bins).fill(null), ...rows.reverse());
      });
      const steps = KINDS.flatMap((kind, place) => [[place / 5, colour(kind)], [(place + 1) / 5, colour(kind)]]);
      const ticks = layers.map((_, place) => place * (part + 1) + 1 + part / 2);
      return {
        traces: [{
          type: "heatmap", z, x: shown.edges.map((edge) => edge + shown.begin), y: Array.from({ length: z.length + 1 }, (_, row) => row),
          zmin: 0, zmax: 5, colorscale: steps, showscale: false, hoverinfo: "none", hoverongaps: false,
        }],
        layout: layout({
          height: height(layers.length), margin: { l: 8, r: 14, t: 6, b: 44 },
          xaxis: axis("cycle", { showgrid: false, zeroline: false, tickformat: ",d" }),
          yaxis: axis("", {
            autorange: "reversed", showgrid: false, zeroline: false, tickvals: ticks, fixedrange: true,
            ticktext: layers.map((layer) => short(layer.name, phone() ? 12 : 24)), tickfont: { size: size(layers.length) },
          }),
        }),
      };
    }, (element) => {
      element.on("plotly_hover", (event) => {
        const shown = view(), part = PART(shown.layers.length) + 1, [row, bin] = event.points[0].pointNumber;
        const place = Math.floor(row / part), layer = shown.layers[place];
        if (!layer) return;
        const from = shown.edges[bin] + shown.begin, to = shown.edges[bin + 1] + shown.begin - 1;
        const lines = shares(shown)[place].map((state) => [state.shares[bin - layer.first] || 0, state]).filter(([share]) => share)
          .map(([share, state]) => `${Math.round(100 * share / 255)}% ${described(state)}`);
        showTip([`${layer.name}, cycles ${number(from)} to ${number(to)}`, ...lines].join("\n"), event.event.clientX, event.event.clientY);
      });
      element.on("plotly_unhover", hideTip);
    });
    chart("chart-fills", () => {
      const shown = view(), bins = shown.edges.length - 1;
      const z = shown.fifos.map((fifo, place) => {
        const row = new Array(bins).fill(null);
        fifo.most.forEach((most, bin) => { row[fifo.first + bin] = most / times.fifos[place].depth; });
        return row;
      });
      return {
        traces: [{
          type: "heatmap", z, x: shown.edges.map((edge) => edge + shown.begin), y: shown.fifos.map((_, place) => place), ygap: 2,
          zmin: 0, zmax: 1, colorscale: [[0, colour("done")], [1, colour("first")]], hoverinfo: "none",
          colorbar: { tickformat: ".0%", outlinewidth: 0, thickness: 10, len: 1 },
        }],
        layout: layout({
          height: height(z.length), xaxis: axis("cycle", { showgrid: false, zeroline: false, tickformat: ",d" }),
          yaxis: axis("", {
            autorange: "reversed", showgrid: false, zeroline: false, tickvals: shown.fifos.map((_, place) => place), fixedrange: true,
            ticktext: shown.fifos.map((fifo) => short(fifo.name, phone() ? 14 : 30)), tickfont: { size: size(z.length) },
          }),
        }),
      };
    }, (element) => {
      element.on("plotly_hover", (event) => {
        const shown = view(), [place, bin] = event.points[0].pointNumber, fifo = shown.fifos[place], plan = times.fifos[place];
        const most = fifo.most[bin - fifo.first];
        showTip(`${fifo.name}\ncycles ${number(shown.edges[bin] + shown.begin)} to ${number(shown.edges[bin + 1] + shown.begin - 1)}\n`
          + `${number(most)} of ${number(plan.depth)} beats`, event.event.clientX, event.event.clientY);
      });
      element.on("plotly_unhover", hideTip);
      element.on("plotly_click", (event) => { at("fifo").value = event.points[0].pointNumber[0]; draw("chart-fifo"); });
    });
    chart("chart-fifo", () => {
      const shown = view(), place = Number(at("fifo").value), fifo = shown.fifos[place], depth = times.fifos[place].depth;
      const x = shown.edges.slice(fifo.first, fifo.first + fifo.most.length).map((edge) => edge + shown.begin);
      return {
        traces: [{
          type: "scatter", mode: "lines", x, y: fifo.most, line: { shape: "hv", color: colour("first"), width: 1.5 }, fill: "tozeroy",
          hovertemplate: "cycle %{x:,}: %{y:,} beats<extra></extra>",
        }],
        layout: layout({
          height: 220, xaxis: axis("cycle", { tickformat: ",d" }), yaxis: axis("beats", { rangemode: "tozero", range: [0, depth * 1.12] }),
          shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: depth, y1: depth, line: { color: colour("mark"), width: 1.5, dash: "dash" } }],
          annotations: [{
            xref: "paper", x: 1, y: depth, yanchor: "bottom", xanchor: "right", text: `depth ${number(depth)}`, showarrow: false,
            font: { color: colour("mark"), size: 11 },
          }],
        }),
      };
    });
    for (const input of document.querySelectorAll("input[name=view]")) {
      input.addEventListener("change", () => ["chart-times", "chart-fills", "chart-fifo"].forEach(draw));
    }
    if (at("fifo")) at("fifo").addEventListener("change", () => draw("chart-fifo"));
  }

  // The first difference: the hardware's map, the golden model's, and what lies between.
  const difference = data.verification && data.verification.difference;
  if (difference) {
    chart("chart-difference", () => {
      const [top, left] = difference.begin, rows = difference.wanted.length, columns = difference.wanted[0].length;
      const between = difference.wanted.map((row, y) => row.map((value, x) => difference.seen[y][x] - value));
      const flat = [...difference.wanted.flat(), ...difference.seen.flat()], low = Math.min(...flat), high = Math.max(...flat);
      const most = Math.max(1, ...between.flat().map(Math.abs)), stacked = phone();
      const map = (z, place, more) => ({
        type: "heatmap", z, x0: left, dx: 1, y0: top, dy: 1, xaxis: `x${place || ""}`, yaxis: `y${place || ""}`, showscale: false,
        hovertemplate: "row %{y}, column %{x}: %{z}<extra></extra>", ...more,
      });
      const cross = (place) => ({
        type: "scatter", mode: "markers", x: [difference.column], y: [difference.row], xaxis: `x${place || ""}`, yaxis: `y${place || ""}`,
        marker: { symbol: "x-thin", size: 14, line: { width: 2, color: colour("mark") } }, hoverinfo: "skip",
      });
      const grey = [[0, "#101418"], [1, "#f2f4f7"]], signed = [[0, "#2f7fc1"], [0.5, colour("paper")], [1, "#d0553f"]];
      const titles = ["the hardware", "the golden model", "hardware minus golden model"];
      const axes = {};
      titles.forEach((title, place) => {
        const name = place ? place + 1 : "", part = [place / 3 + 0.012, (place + 1) / 3 - 0.012], up = [(2 - place) / 3 + 0.03, (3 - place) / 3 - 0.03];
        axes[`xaxis${name}`] = axis(title, { domain: stacked ? [0, 1] : part, anchor: `y${name}`, showgrid: false, zeroline: false, constrain: "domain", automargin: false });
        axes[`yaxis${name}`] = axis("", {
          domain: stacked ? up : [0, 1], anchor: `x${name}`, autorange: "reversed", showgrid: false, zeroline: false, showticklabels: rows * columns > 1 && !place,
          scaleanchor: `x${name}`, constrain: "domain", automargin: false,
        });
      });
      const wide = Math.max(220, Math.min(340, 340 * rows / columns));
      return {
        traces: [
          map(difference.seen, 0, { zmin: low, zmax: Math.max(high, low + 1), colorscale: grey }),
          map(difference.wanted, 2, { zmin: low, zmax: Math.max(high, low + 1), colorscale: grey }),
          map(between, 3, { zmin: -most, zmax: most, colorscale: signed }), cross(0), cross(2), cross(3),
        ],
        layout: layout({ height: (stacked ? 3 : 1) * wide + 70, margin: { l: 34, r: 8, t: 8, b: 44 }, ...axes }),
      };
    });
  }

  // Synthesis: each layer's estimate next to Yosys' counts.
  if (data.synthesis) {
    chart("chart-synthesis", () => {
      const { layers, estimates } = data.synthesis, names = layers.map((layer) => short(layer.name, phone() ? 12 : 24));
      const bar = (name, list, key, hue, place) => ({
        type: "bar", name, x: names, y: list.map((layer) => layer[key]), marker: { color: hue }, xaxis: `x${place}`, yaxis: `y${place}`,
        hovertemplate: `%{x}: %{y:,} ${key.toUpperCase()} ${name}<extra></extra>`, showlegend: place === "",
      });
      const half = phone() ? { x: [[0, 1], [0, 1]], y: [[0.6, 1], [0, 0.4]] } : { x: [[0, 0.47], [0.53, 1]], y: [[0, 1], [0, 1]] };
      return {
        traces: [
          bar("estimated", estimates, "lut", colour("second"), ""), bar("by Yosys", layers, "lut", colour("first"), ""),
          bar("estimated", estimates, "ff", colour("second"), "2"), bar("by Yosys", layers, "ff", colour("first"), "2"),
        ],
        layout: layout({
          barmode: "group", height: phone() ? 560 : 320, showlegend: true, legend: below, margin: { l: 8, r: 14, t: 40, b: 44 },
          xaxis: axis("", { domain: half.x[0], showgrid: false }), yaxis: axis("LUTs", { domain: half.y[0] }),
          xaxis2: axis("", { domain: half.x[1], anchor: "y2", showgrid: false }), yaxis2: axis("flip-flops", { domain: half.y[1], anchor: "x2" }),
        }),
      };
    });
  }

  // Fronts of an exploration, with what others published and with a plan.
  (data.fronts ? data.fronts.fronts : []).forEach((front, place) => {
    chart(`chart-front-${place}`, () => {
      const wrap = (text) => text.replace(/(.{60,80}?), /g, "$1,<br>").slice(0, 900);
      const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
      const dots = (points, name, hue, symbol, size) => ({
        type: "scatter", mode: "markers", name, x: points.map((point) => point.x), y: points.map((point) => point.y),
        text: points.map((point) => wrap(escaped(point.text || name))), marker: { color: hue, symbol, size, line: { color: colour("paper"), width: 0.7 } },
        hovertemplate: `%{x:,.4~r} ${front.x.replace(/ \[.*/, "")}, %{y:,.4~r} ${front.y.replace(/ \[.*/, "")}<br>%{text}<extra></extra>`,
      });
      const fitting = front.points.filter((point) => point.fits), others = front.points.filter((point) => !point.fits);
      const traces = [{
        type: "scatter", mode: "lines", x: front.points.map((point) => point.x), y: front.points.map((point) => point.y), showlegend: false,
        line: { shape: front.key === "storage_multiplications" ? "linear" : "hv", color: colour("line"), width: 1.4 }, hoverinfo: "skip",
      }];
      if (front.key === "storage_multiplications") traces.pop();
      traces.push(dots(fitting, front.fits ? `fits ${front.board}` : "front", colour("first"), "circle", 7));
      if (others.length) traces.push(dots(others, `does not fit ${front.board}`, colour("soft"), "circle-open", 7));
      if (front.published.length) traces.push(dots(front.published, "published", colour("mark"), "x", 10));
      if (front.chosen) traces.push(dots([{ ...front.chosen, text: `the plan ${data.fronts.chosen}` }], "the plan", colour("second"), "star", 16));
      const most = Math.max(...front.points.map((point) => point.x));
      const shapes = front.limit && front.limit <= 4 * most ? [{
        type: "line", x0: front.limit, x1: front.limit, yref: "paper", y0: 0, y1: 1, line: { color: colour("mark"), width: 1.3, dash: "dash" },
      }] : [];
      const scale = front.log ? "log" : "linear";
      return {
        traces,
        layout: layout({
          height: 380, showlegend: true, legend: below, margin: { l: 8, r: 14, t: 40, b: 48 }, shapes,
          xaxis: axis(front.x, { ...(front.key === "dsp_cycles" ? { type: "log", dtick: 1 } : { rangemode: "tozero" }), tickformat: ",~r" }),
          yaxis: axis(front.y, { type: scale, ...(front.log ? { dtick: front.key === "dsp_cycles" ? 1 : "D2" } : { rangemode: "tozero" }), tickformat: ",~s" }),
        }),
      };
    });
  });

  // The drawing of the network.
  const SVG = "http://www.w3.org/2000/svg";
  const element = (name, attributes, parent, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  };
  const choose = (node, drawn) => {
    for (const each of document.querySelectorAll(".node")) {
      each.classList.toggle("chosen", each === drawn);
      each.setAttribute("aria-pressed", each === drawn);
    }
    const panel = at("panel");
    panel.replaceChildren();
    const title = document.createElement("h3"), list = document.createElement("dl");
    title.textContent = node.kind === node.name ? node.name : `${node.name} (${node.kind})`;
    const waits = times && times.views.length && times.views[0].layers.find((layer) => layer.name === node.name);
    const facts = [...node.facts];
    if (waits && node.group !== null) {
      waits.states.forEach((state) => facts.push([`in ${times.views[0].name}`, `${number(state.cycles)} cycles: ${described(state)}`]));
    }
    for (const [name, value] of facts) {
      const term = document.createElement("dt"), said = document.createElement("dd");
      term.textContent = name;
      said.textContent = value;
      list.append(term, said);
    }
    panel.append(title, list);
  };
  const kindHue = (kind) => {
    const kinds = [...new Set(design.network.nodes.map((node) => node.kind))].filter((each) => !["input", "output"].includes(each));
    return ["input", "output"].includes(kind) ? colour("soft") : hues[kinds.indexOf(kind) % hues.length];
  };
  const drawNetwork = () => {
    const graph = new dagre.graphlib.Graph({ compound: true, multigraph: true });
    graph.setGraph({ rankdir: "TB", nodesep: 26, ranksep: 34, marginx: 14, marginy: 14, edgesep: 14 });
    graph.setDefaultEdgeLabel(() => ({}));
    const several = design.network.groups.length > 1;
    if (several) design.network.groups.forEach((_, place) => graph.setNode(`group ${place}`, {}));
    for (const node of design.network.nodes) {
      const width = Math.max(118, 7.4 * Math.max(short(node.name, 30).length, (node.kind + node.shape).length * 0.86 + 2) + 26);
      graph.setNode(node.id, { width, height: 44, node });
      if (several && node.group !== null) graph.setParent(node.id, `group ${node.group}`);
    }
    design.network.edges.forEach((edge, place) => graph.setEdge(edge.from, edge.to, { edge }, String(place)));
    dagre.layout(graph);
    const box = graph.graph(), width = Math.ceil(box.width), tall = Math.ceil(box.height);
    const svg = element("svg", { viewBox: `0 0 ${width} ${tall}`, width, height: tall, role: "group", "aria-label": "Layers of the network" });
    const head = element("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, element("defs", {}, svg));
    element("path", { d: "M0 0 L8 4 L0 8 z", fill: "context-stroke" }, head);
    if (several) {
      design.network.groups.forEach((_, place) => {
        const group = graph.node(`group ${place}`);
        if (!(group.width > 0)) return;
        const cluster = element("g", { class: "cluster" }, svg);
        element("rect", { x: group.x - group.width / 2, y: group.y - group.height / 2, width: group.width, height: group.height, rx: 8 }, cluster);
      });
    }
    for (const each of graph.edges()) {
      const { points } = graph.edge(each);
      const drawn = element("g", { class: "edge" }, svg);
      const middle = points.slice(1).map((point, place, rest) => (place < rest.length - 1
        ? `Q${point.x} ${point.y} ${(point.x + rest[place + 1].x) / 2} ${(point.y + rest[place + 1].y) / 2}` : `L${point.x} ${point.y}`));
      element("path", { d: `M${points[0].x} ${points[0].y}${middle.join("")}`, "marker-end": "url(#head)" }, drawn);
    }
    for (const id of graph.nodes()) {
      const { x, y, width: wide, height: high, node } = graph.node(id);
      if (!node) continue;
      const drawn = element("g", {
        class: "node", role: "button", tabindex: 0, "aria-pressed": "false", "aria-label": `${node.name}, ${node.kind}, ${node.shape}`,
        "data-id": node.id, transform: `translate(${x - wide / 2} ${y - high / 2})`,
      }, svg);
      element("rect", { width: wide, height: high, rx: 6 }, drawn);
      element("rect", { class: "stripe", x: 4, y: 7, width: 4, height: high - 14, rx: 2, style: `fill:${kindHue(node.kind)}` }, drawn);
      element("text", { x: 14, y: 19 }, drawn, short(node.name, 30));
      element("text", { x: 14, y: 35, class: "what" }, drawn, `${node.kind}  ${node.shape}`);
      drawn.addEventListener("click", () => choose(node, drawn));
      drawn.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(node, drawn); }
      });
    }
    at("drawing").replaceChildren(svg);
    const first = design.network.nodes.find((node) => node.group !== null);
    choose(first, svg.querySelector(`[data-id="${CSS.escape(first.id)}"]`));
  };
  if (design) drawNetwork();

  drawAll();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  // On paper: light colours, and the width of a page.
  window.addEventListener("beforeprint", () => { document.documentElement.classList.add("paper"); drawAll(); });
  window.addEventListener("afterprint", () => { document.documentElement.classList.remove("paper"); drawAll(); });
})();
