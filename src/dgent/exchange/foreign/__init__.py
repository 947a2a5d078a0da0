"""The cupboard in and out: folders of the original program, and files of the beads tracker."""
