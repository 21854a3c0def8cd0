"""What people read: tables, pictures, and the report of a plan."""
