import asyncio
import multiprocessing


def work():
    asyncio.run(main())


async def main():
    with open("loops", "a") as file:
        print(type(asyncio.get_running_loop()).__name__, file=file)


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
