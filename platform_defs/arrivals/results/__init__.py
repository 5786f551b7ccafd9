"""What clients read of table arrival: tasks, how batches stand, and values of KPIs."""
