"""python3 -m sparsereel_program: the same as the command sparsereel."""
from sparsereel_program import main

main()
