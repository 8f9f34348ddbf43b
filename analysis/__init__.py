"""From tracked runs to tables, statistics, figures and pages."""
