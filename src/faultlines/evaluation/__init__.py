"""Where models are evaluated: estimators, tables of other libraries, model cards."""
