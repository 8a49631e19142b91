#!/usr/bin/env bash
# Writes load-test/report.md as a comment. The report comes from the measured code: it is a text in a fence, through
# which it mentions, links and shows nothing, and never a command.
set -euo pipefail
[[ $NUMBER =~ ^[1-9][0-9]{0,9}$ ]] || { echo "pull-request must be a number" >&2; exit 2; }
[[ $ARTIFACT =~ ^[A-Za-z0-9._-]{1,100}$ ]] || { echo "artifact must be a name of letters, digits, . _ -" >&2; exit 2; }
report=load-test/report.md
# A link in the artefact could name any file of this job's machine.
[[ -f $report && ! -L $report && ! -L load-test ]] || { echo "the artefact has no file report.md" >&2; exit 2; }
# A comment has room for 65 536 characters.
text=$(head -c 60000 "$report" | tr -d '\0')
longest=$( (grep -o '`*' <<< "$text" || true) | awk '{ if (length > most) most = length } END { print most + 0 }')
if ((longest > 1000)); then
  text=$(tr '`' "'" <<< "$text")
  longest=0
fi
fence=$(printf '`%.0s' $(seq $((longest < 3 ? 3 : longest + 1))))
# By it this comment is found again: another program's last one is left alone.
marker="<!-- llama-load: $ARTIFACT -->"
printf '%s\n%s\n%s\n%s\n' "$marker" "$fence" "$text" "$fence" > comment.md
comments=repos/$REPOSITORY/issues/$NUMBER/comments
mine=".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$marker\"))) | .id"
id=$(gh api --paginate "$comments" --jq "$mine" | tail -n 1)
if [[ -n $id ]]; then
  gh api --method PATCH "repos/$REPOSITORY/issues/comments/$id" -F body=@comment.md > /dev/null
else
  gh api --method POST "$comments" -F body=@comment.md > /dev/null
fi
