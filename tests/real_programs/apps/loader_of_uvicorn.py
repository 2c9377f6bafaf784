"""Import the module that goloop patches in uvicorn, and print its function's result and loaders."""

import uvicorn.loops.auto as auto

loaders = auto.__loader__, auto.__spec__.loader
print(auto.another(), *(type(each).__name__ for each in loaders))
