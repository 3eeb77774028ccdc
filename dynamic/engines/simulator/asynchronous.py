class Asynchronous:
    def __init__(self, machine): self.machine=machine
    def fence(self, *a): pass
