"""The demonstration `holdfast demo crash`: an answer that goes on after its worker was killed."""
