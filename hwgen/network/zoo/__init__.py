"""Built-in networks (VGG-16, ResNet, MobileNet ..) for tests and exploration, with seeded random weights."""
