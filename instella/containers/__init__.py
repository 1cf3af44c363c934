"""Images in which stages run, how they are built, and the engines that run them."""
