"""The runtime: dgent runs the agent whose memory it keeps."""
