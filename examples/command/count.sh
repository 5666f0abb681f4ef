#!/bin/sh
# Counts words, and keeps a total of its own in its workspace. Speaks as Claude Code does, one JSON object a line.
words=$(wc -w)
total=$(($(cat total 2>/dev/null || echo 0) + words))
echo "$total" > total
printf '{"type": "result", "is_error": false, "result": "%d words, %d in all"}\n' "$words" "$total"
