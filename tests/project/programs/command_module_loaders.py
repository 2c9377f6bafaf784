def get_child_arguments():
    return []


def main():
    pass
