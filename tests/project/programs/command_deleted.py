class C:
    def __del__(self):
        print("gone", __name__)


c = C()
