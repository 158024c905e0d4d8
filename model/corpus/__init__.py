"""What is done to the text of a training corpus before it is tokenized: cleaning, numbers, augmentation."""
