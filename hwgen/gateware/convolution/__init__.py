"""Parts of the configuration of a convolution's arithmetic, such as chains of multiply-adds and weight memories."""
