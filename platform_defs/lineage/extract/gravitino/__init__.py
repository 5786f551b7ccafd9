"""Events of Gravitino's listener: metadata operations, told by the name of the job."""
