"""Object stores, HDFS and the web."""
