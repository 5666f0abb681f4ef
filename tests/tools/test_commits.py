"""Subjects of recent commits are short enough for one line of `git log`."""

from __future__ import annotations

import subprocess

import pytest

from tools.check import ROOT

SUBJECT_LENGTH = 72
COMMITS = 30


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no git repository")
    return done.stdout


def test_subjects_of_the_last_commits_have_at_most_72_characters() -> None:
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone has no history")
    subjects = git("log", f"-{COMMITS}", "--format=%s").splitlines()
    assert [subject for subject in subjects if len(subject) > SUBJECT_LENGTH] == []
