# Odd iterations drop a line of the page that holds no title, even ones pad it: those are rolled back.
set -eu
if [ $((EVOLVER_ITERATION % 2)) = 1 ]; then
  awk '!dropped && !/<title>/ { dropped = 1; next } { print }' page.html > page.tmp
  mv page.tmp page.html
else
  echo '<!-- padding -->' >> page.html
fi
