"""What tuning chose and what it brought: as a table, as a page, as a picture."""

from keras_tunedconv.reporting.table import Report, Row, report

__all__ = ["Report", "Row", "report"]
