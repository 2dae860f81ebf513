"""A durable message queue on Apache Cassandra, and on a plain file where there is none."""
