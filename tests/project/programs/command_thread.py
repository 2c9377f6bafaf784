import threading
import time

word = "alive"


def f():
    time.sleep(0.1)
    print(word)


threading.Thread(target=f).start()
