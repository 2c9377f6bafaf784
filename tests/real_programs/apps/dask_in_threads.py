"""Dask's synchronous client and its workers in threads of one process; prints their loops."""

from distributed import Client, LocalCluster

import goloop


def loop_of_worker(dask_worker):
    return loop_name(dask_worker.loop)


def loop_name(loop):
    kind = type(loop.asyncio_loop)
    return f"{kind.__module__}.{kind.__qualname__}"


if __name__ == "__main__":
    goloop.install()
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        print(loop_name(client.loop), *client.run(loop_of_worker).values())
        assert client.submit(sum, range(10)).result() == 45
