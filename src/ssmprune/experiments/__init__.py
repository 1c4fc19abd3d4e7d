"""Training, evaluation and measurements: everything that puts the core, the models and the tasks together."""
