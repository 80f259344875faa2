"""The HTTP toolkit: how a request is bounded, authenticated, routed, validated and answered."""
