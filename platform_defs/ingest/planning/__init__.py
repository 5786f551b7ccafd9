"""The planner: windows, slices and tasks of a plan, made once however often they are asked for. It sends no request."""
