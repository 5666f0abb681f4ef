"""What the stores reach of what their engines can do, measured side by side in one run."""
