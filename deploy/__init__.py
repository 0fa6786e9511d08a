"""What runs recordmill elsewhere: Dataflow, Flink on Kubernetes, Airflow."""
