"""What slots receive and keep of TPC-H's joins under every strategy: real flows, in this process, without Spark."""
