"""PostgreSQL: the pool, the clock, grouped writes, migrations, and the embedded server."""
