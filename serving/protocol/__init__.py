"""KServe v2 over HTTP and gRPC: what Triton's clients speak, before a `ModelServer` of this process."""
