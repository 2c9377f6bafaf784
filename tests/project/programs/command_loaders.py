import copy
import importlib.abc
import importlib.machinery
import importlib.resources
import importlib.util
import inspect
import pickle
import pkgutil
import runpy


def describe(loader, name, origin):
    kinds = [getattr(importlib.abc, f"{kind}Loader") for kind in ("Inspect", "Execution", "Source")]
    print([isinstance(loader, kind) for kind in (*kinds, importlib.machinery.SourceFileLoader)])
    print(type(loader.get_code(name)), len(loader.get_source(name)), loader.is_package(name))
    print(len(loader.get_data(origin)), loader.get_filename(name), loader.path_stats(origin))
    print(type(loader.get_resource_reader(name)), loader.path, loader.name)
    print(loader.source_to_code(b"1", "x").co_filename, repr(loader).partition(" at ")[0])
    copies = [copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]
    print([(type(each), each.path) for each in copies])


for name in ("multiprocessing.spawn", "multiprocessing.util", "django.utils.autoreload"):
    spec = importlib.util.find_spec(name)
    describe(spec.loader, name, spec.origin)
    print(pkgutil.get_data(name.rpartition(".")[0], name.rpartition(".")[2] + ".py")[:9])
    print("main" in runpy.run_module(name), runpy.run_module(name)["__name__"])
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    describe(fresh.__loader__, name, spec.origin)
    module = importlib.import_module(name)
    describe(module.__loader__, name, spec.origin)
    print(len(inspect.getsource(module)), inspect.getsourcefile(module))
    print(importlib.resources.files(name.rpartition(".")[0]).joinpath("__init__.py").is_file())
