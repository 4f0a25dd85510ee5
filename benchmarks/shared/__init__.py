"""What several benches use: inputs, answers, figures, reports, and how peers are started."""
