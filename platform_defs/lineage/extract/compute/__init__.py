"""Extraction for compute engines: standard OpenLineage events of Spark, Flink, Hive, Trino, dbt, Airflow and others."""
