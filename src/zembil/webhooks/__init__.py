"""Events, the endpoints that receive them, their deliveries and attempts."""
