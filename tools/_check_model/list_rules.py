"""The rules of the list of pipes, from which those of one source are taken one after the other.

Owns their names and words, and the code that carries each; where a rule stands in list.pml, the comment
`RULE name` there says. What must not break: every `NO_...` of list.pml is a rule here.
"""

_WHO = "cassq.popping.slots.Slots._list cassq.pipes.pipe_list.PipeList._with_older"

#: Name, words and functions of each.
LIST_RULES = (
    ("list_twice", "a pipe that is new in a list is taken from once another list was read", _WHO),
    ("list_cut", "nothing is taken that came after the first of two lists", _WHO),
)
