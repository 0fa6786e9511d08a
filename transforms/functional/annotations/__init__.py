"""What is on a picture beside its class: boxes, masks, outlines, in each format that has them."""
