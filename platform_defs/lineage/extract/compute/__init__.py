"""Events of compute engines: standard OpenLineage from Spark, Flink, Hive, Trino, dbt, Airflow and others."""
