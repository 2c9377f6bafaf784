import pickle


class C:
    pass


print(type(pickle.loads(pickle.dumps(C()))) is C)
