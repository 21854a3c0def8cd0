// Runs a top behind a serial port on the file descriptor of a pseudo-terminal: argument 1, bits as argument 2 cycles long.
// Argument 3: byte from the host to drop (from 0 on), or -1.
#include "Vtop.h"
#include "verilated.h"
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

int main(int, char **arguments) {
    const int line = atoi(arguments[1]), cycles = atoi(arguments[2]);
    long dropped = atol(arguments[3]), taken = 0;
    fcntl(line, F_SETFL, O_NONBLOCK);
    Vtop top;
    top.rx = 1;
    unsigned sent = 0, received = 0;
    int send_bits = 0, send_timer = 0, receive_bits = 0, receive_timer = 0, idle = 0;
    for (;;) {
        if (send_bits == 0 && ++idle >= cycles) {
            unsigned char byte;
            const ssize_t count = read(line, &byte, 1);
            idle = 0;
            if (count == 1) {
                if (taken++ != dropped) {
                    sent = (byte << 1) | 0x200;
                    send_bits = 10;
                    send_timer = 0;
                }
            } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
                return 0;
            } else if (receive_bits == 0 && taken == 0) {
                usleep(100);
            }
        }
        if (send_bits) {
            top.rx = sent & 1;
            if (++send_timer == cycles) {
                send_timer = 0;
                sent >>= 1;
                if (--send_bits == 0) top.rx = 1;
            }
        }
        top.clk = 1;
        top.eval();
        top.clk = 0;
        top.eval();
        if (receive_bits == 0) {
            if (!top.tx) {
                receive_bits = 9;
                receive_timer = cycles + cycles / 2;
                received = 0;
            }
        } else if (--receive_timer == 0) {
            receive_timer = cycles;
            if (--receive_bits) {
                received = (received >> 1) | (top.tx << 7);
            } else {
                const unsigned char byte = received;
                if (!top.tx || write(line, &byte, 1) != 1) return 1;
            }
        }
    }
}
