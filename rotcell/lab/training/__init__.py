"""The model of the paper and its training: from questions to a trained model and its history."""
