import sys

names = {name: value for name, value in sorted(globals().items()) if name not in ("names", "sys")}
names.pop("__builtins__")
for name, value in names.items():
    if name == "__loader__":
        value = value if isinstance(value, type) else (type(value).__qualname__, value.name)
    elif name == "__spec__" and value is not None:
        value = (value.name, value.origin, value.parent)
    print(name, "=", value)
print(sys.argv, list(sys.path), sys.modules["__main__"].__dict__ is globals())
print(sys.flags)
