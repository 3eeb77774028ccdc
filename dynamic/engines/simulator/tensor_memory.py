class TensorMemory:
    def __init__(self, machine): pass
