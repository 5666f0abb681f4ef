"""Tests of CONTRACT.md, to the letter."""
