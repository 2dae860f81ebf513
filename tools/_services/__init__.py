"""What `tools/services` is made of: real Cassandra and ZooKeeper servers for tests and demos."""
