"""ZooKeeper behind the coordination port."""
