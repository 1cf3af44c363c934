"""Programs that mean harm, or do it by accident. ``solve`` takes no argument.

``OUTSIDE`` holds programs that reach for something the language does not have; ``WITHIN``
those that are written in it and want too much.
"""

OUTSIDE = {
    "reads a file": "def solve():\n    return len(open('/etc/passwd').read())",
    "writes a file": "def solve():\n    open('/tmp/left_behind', 'w').write('x')\n    return 1",
    "opens at low level": "import os\ndef solve():\n    return os.open('/etc/passwd', 0)",
    "starts a shell": "import os\ndef solve():\n    return os.system('sleep 100')",
    "starts a process": "import subprocess\ndef solve():\n"
    "    return subprocess.run(['sleep', '100']).returncode",
    "opens a socket": "import socket\ndef solve():\n"
    "    socket.create_connection(('127.0.0.1', 9))\n    return 1",
    "loads a library": "import ctypes\ndef solve():\n"
    "    return ctypes.CDLL(None).system(b'sleep 100')",
    "maps executable memory": "import mmap\ndef solve():\n"
    "    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n    return 1",
    "forks for ever": "import os\ndef solve():\n    while True:\n        os.fork()",
    "starts a thread": "import _thread\ndef solve():\n"
    "    _thread.start_new_thread(print, ())\n    return 1",
    "kills its parent": "import os, signal\ndef solve():\n"
    "    os.kill(os.getppid(), signal.SIGKILL)\n    return 1",
    "ignores signals": "import signal\ndef solve():\n"
    "    signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n    return 1",
    "raises its limits": "import resource\ndef solve():\n"
    "    resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))\n    return 1",
    "reads the environment": "import os\ndef solve():\n    return len(os.listdir('/proc/self'))",
    "sleeps": "import time\ndef solve():\n    time.sleep(1000)\n    return 1",
    "imports by name": "def solve():\n    return __import__('os').getppid()",
    "imports by library": "import importlib\ndef solve():\n"
    "    return importlib.import_module('socket').socket().fileno()",
    "walks to object": "def solve():\n    for kind in ().__class__.__base__.__subclasses__():\n"
    "        if kind.__name__ == 'FileIO' or kind.__name__ == '_FileIO':\n"
    "            return kind('/etc/passwd').read(1)[0]\n    return open('/etc/passwd').fileno()",
    "formats an attribute": "def solve():\n    return len('{0.__globals__}'"
    ".format(solve)) + open('/etc/passwd').fileno()",
    "maps a format": "def solve():\n    return len('{a.__class__}'.format_map({'a': 1})) + "
    "open('/etc/passwd').fileno()",
    "smuggles builtins": "def solve():\n    found = [].append.__self__.__class__.__mro__[1]\n"
    "    return solve.__globals__['__builtins__']['open']('/etc/passwd').fileno()",
    "gets an attribute": "def solve():\n    return getattr(solve, '__globals__')['__builtins__']"
    "['open']('/etc/passwd').fileno()",
    "evaluates": "def solve():\n    return eval(\"open('/etc/passwd').fileno()\")",
    "compiles": "def solve():\n    exec(compile(\"open('/etc/passwd')\", 'a', 'exec'))\n"
    "    return 1",
    "reads a generator's frame": "def solve():\n    g = (i for i in [1])\n"
    "    return g.gi_frame.f_builtins['open']('/etc/passwd').fileno()",
    "reads a coroutine's frame": "async def wait():\n    return 1\ndef solve():\n"
    "    return wait().cr_frame.f_builtins['open']('/etc/passwd').fileno()",
    "reads a traceback": "def solve():\n    try:\n        1 / 0\n    except Exception as error:\n"
    "        frame = error.__traceback__.tb_frame\n"
    "    return frame.f_builtins['open']('/etc/passwd').fileno()",
    "decorates": "@lambda f: open('/etc/passwd').fileno\ndef solve():\n    return 1",
    "hides in a lambda": "solve = lambda: (f := open)('/etc/passwd').fileno()",
    "hides in a class": "class Number(int):\n    def __add__(self, other):\n"
    "        return open('/etc/passwd').fileno()\ndef solve():\n    return Number(1) + 1",
    "hides in a default": "def solve(a=open('/etc/passwd').fileno()):\n    return a",
    "hides in an annotation": "def solve() -> open('/etc/passwd').fileno():\n    return 1",
    "hides in a format string": "def solve():\n    f\"{open('/etc/passwd')}\"\n    return 1",
    "uses wide letters": "def solve():\n    return \uff4f\uff50\uff45\uff4e('/etc/passwd').fileno()",
    "unpickles": 'import pickle\ndef solve():\n    return pickle.loads(b"cposix\\nsystem\\n'
    "(S'sleep 100'\\ntR.\")",
    "leaves": "import os\ndef solve():\n    os._exit(0)",
    "exits": "import sys\ndef solve():\n    sys.exit(0)",
    "crashes": "import ctypes\ndef solve():\n    ctypes.string_at(0)\n    return 1",
    "prints a gigabyte": "def solve():\n    for _ in range(1024):\n"
    "        print('x' * (1 << 20))\n    return 1",
    "writes a gigabyte out": "import os\ndef solve():\n    for fd in range(3, 30):\n"
    "        for _ in range(1024):\n            try:\n                os.write(fd, b'x' * (1 << 20))\n"
    "            except OSError:\n                break\n    return 1",
    "takes memory": "def solve():\n    return len(bytearray(8 << 30))",
    "holds a NUL": "def solve():\n    return 1\0",
}

WITHIN = {
    "never ends": "def solve():\n    while True:\n        pass",
    "counts for ever": "def solve():\n    i = 0\n    while i >= 0:\n        i += 1\n    return i",
    "tower of powers": "def solve():\n    return 10**10**10",
    "grows a power": "def solve():\n    x = 2\n    for i in range(100):\n        x = x**x\n"
    "    return x",
    "grows a product": "def solve():\n    x = 3\n    for i in range(10000):\n        x *= x\n"
    "    return x",
    "long range": "def solve():\n    return len(list(range(10**9)))",
    "sum of a long range": "def solve():\n    return sum(range(10**12))",
    "searches a long range": "def solve():\n    return 0.5 in range(10**12)",
    "long list": "def solve():\n    return len([0] * 10**9)",
    "long text": "def solve():\n    return len('x' * 10**9)",
    "doubles a text": "def solve():\n    s = 'x'\n    while True:\n        s += s",
    "doubles a list": "def solve():\n    a = [1]\n    while True:\n        a = a + a",
    "feeds itself": "def solve():\n    a = [1]\n    for x in a:\n        a.append(x)\n"
    "    while len(a) > 0:\n        for x in a:\n            a.append(x)\n    return 1",
    "calls itself": "def solve():\n    return solve()",
    "calls itself twice": "def f(n):\n    return 1 if n < 2 else f(n - 1) + f(n - 2)\n"
    "def solve():\n    return f(35)",
    "nests lists": "def solve():\n    a = []\n    for i in range(1000):\n        a = [a]\n"
    "    return 1 if a == [a] else 2",
    "shares lists": "def solve():\n    a = [1]\n    b = [1]\n    for i in range(19):\n"
    "        a = [a, a]\n        b = [b, b]\n    return 1 if a == b else 2",
    "shares keys": "def solve():\n    a = (1,)\n    for i in range(19):\n        a = (a, a)\n"
    "    d = {}\n    d[a] = 1\n    return 1",
    "keys that collide": "def solve():\n    d = {}\n    i = 0\n    while True:\n        d[i] = 1\n"
    "        i += 2**61 - 1",
    "constants that never end": "X = [a * b for a in range(999) for b in range(999)]\n"
    "def solve():\n    return 1",
    "least common multiple": "import math\ndef f(i):\n    return 2**4090 + i\n"
    f"def solve():\n    return math.lcm({', '.join(f'f({i})' for i in range(300))})",
    "far range": "def solve():\n    return range(10**1200)[10**1199 + 10**1100] ** 9",
    "range against range": "def solve():\n    return 1 if range(10**12) == range(10**12) else 2",
    "unpacks a range": "def solve():\n    a, b = range(10**15)\n    return a",
    "deep tuple as a key": "def solve():\n    a = (1,)\n    for i in range(999):\n        a = (a,)\n"
    "    return {a: 1}[a]",
    "calls in a circle": "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)\n"
    "def solve():\n    return f(1)",
    "holds itself": "def solve():\n    a = []\n    a.append(a)\n    return 1 if a == [a] else 2",
    "combines": "def solve():\n    return sum(1 for a in range(999) for b in range(999))",
    "large factorial": "import math\ndef solve():\n    return math.factorial(10**6)",
    "large binomial": "import math\ndef solve():\n    return math.comb(10**9, 10**8)",
    "rounds far": "def solve():\n    return round(5, -10**9)",
    "formats wide": "def solve():\n    return len('%1000000000d' % 1)",
    "deep brackets": "def solve():\n    return " + "(" * 500 + "1" + ")" * 500,
    "deep signs": "def solve():\n    return " + "-" * 3000 + "1",
    "many operations": "def solve():\n    return " + "+".join(["1"] * 1500),
    "long number": "def solve():\n    return " + "9" * 3000,
    "much text": "def solve():\n    return 1\n" + "# filler\n" * 1000,
    "infinite result": "def solve():\n    return 1e308 * 10",
    "imaginary result": "def solve():\n    return (-8) ** 0.5",
    "no result": "def solve():\n    pass",
    "text as a result": "def solve():\n    return 'rm -rf /'",
    "a list as a result": "def solve():\n    return [1]",
    "no function": "x = 1",
}
