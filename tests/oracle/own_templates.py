"""Small templates that exercise every feature once; compare_templates.py renders them with jinja2 into the fixture."""

CONTEXTS = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Grüße 'a' \"b\"\n\u3000x", "n": 1},
            {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"x": 1, "y": [True, None]}}]},
            {"role": "user", "content": "bye", "items": 3, "n": 2},
        ],
        "tools": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
    },
    "data": {
        "i": 7, "neg": -7, "f": 2.5, "big": 1e22, "small": 0.00001, "u": 18446744073709551615, "t": True, "z": 0,
        "s": "Hello, World", "empty": "", "uni": "straße ǆ ΑΣ éÉ 🎉 ﬁ", "ws": " \t a  b \u00a0c\u3000 \n",
        "list": [3, 1, 2], "names": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.0, True, [1], {"k": 1}],
        "dict": {"b": 1, "a": 2, "C": 3}, "nested": {"x": {"y": [10, {"z": "deep"}]}}, "none": None,
        "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []},
                   {"name": "Cid", "age": 30}],
        "html": "<a href=\"x\">'&'</a>", "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3}]}, {"v": 4}]}, {"v": 5}],
        "lines": "one\ntwo\n\nthree\r\nfour\u2028five",
    },
}


def each(prefix, context, sources):
    return [(f"{prefix} {i}", source, context) for i, source in enumerate(sources)]


def exprs(prefix, expressions):
    return each(prefix, "data", ["{{ " + e + " }}" for e in expressions.strip().split("\n")])


TEMPLATES = []

TEMPLATES += exprs("number", """
i + 1
i - 10
i * i
i / 2
i // 2
neg // 2
neg % 3
i % -3
f % 1
-f % 1
f // 1
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
10 / 5
1 / 3
1e3
1.5e300 * 1e10
1_000 + 0x1f + 0o17 + 0b101
big
small
u
u + 1
0.1 + 0.2
100.0
1e16
123456789012345680.0
-0.0
t + 1
true + true
1 == 1.0
true == 1
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 != 1
i is odd, i is even, i is divisibleby 7, i is divisibleby(2)
7.0 | int, "42" | int, "42.9" | int, "x" | int, "x" | int(5), "0x1f" | int(0, 16), " 12 " | int, none | int
"3.5" | float, "x" | float, "x" | float(1.5), 3 | float, "1e3" | float, "inf" | float
2.5 | round, 3.5 | round, 2.675 | round(2), 42.55 | round(1, 'floor'), 42.51 | round(1, 'ceil'), 7 | round, 1234 | round(-2)
neg | abs, -2.5 | abs
[1, 2.5] | sum, [] | sum, [[1], [2]] | sum(start=[])
1 / 0
1 // 0
5 % 0
i + "x"
"x" + i
i + none
-"x"
+i, +f
""")

TEMPLATES += exprs("string", r"""
s[0], s[-1], s[7:], s[:5], s[::-1], s[1:-1:2], s[-3:], s[100:], s[100]
uni[0:6], uni[::-1], uni | length
s * 2
3 * 'ab'
'a' * -1
s ~ 1 ~ none ~ true ~ 2.0 ~ [1]
"a" "b" 'c'
'\n\t\\\'\"\x41\u00e9\U0001F389\q' | tojson
'tab\there' | string
s.upper(), s.lower(), s.title(), s.capitalize()
uni.upper()
uni.lower()
uni.title()
uni.capitalize()
uni | title
"hello-world (foo) [bar] <baz> o'neil" | title
s.split(','), s.split(), s.split('o', 1), ''.split(), ''.split(','), s.split('zz')
ws.split(), ws.split(None, 1), ws.rsplit(None, 1), s.rsplit('o', 1), 'a,b,,c'.split(',')
lines.splitlines()
lines.splitlines(true)
s.partition(','), s.rpartition('o'), s.partition('zz'), s.rpartition('zz')
ws.strip() | tojson, ws.lstrip() | tojson, ws.rstrip() | tojson
s.strip('Hd'), s.lstrip('He'), s.rstrip('dl'), 'xxaxx'.strip('x')
s.startswith('Hell'), s.endswith('x'), s.startswith(('x', 'H')), s.endswith(()), s.startswith('World', 7)
s.replace('o', '0'), s.replace('o', '0', 1), 'aaa'.replace('', '-'), s.replace('l', '')
s.find('o'), s.find('zz'), s.rfind('o'), s.find('o', 5), s.index('W'), s.count('l'), 'aaa'.count('')
s.index('zz')
', '.join(names), ''.join([]), '-'.join('abc')
', '.join(list)
'x'.ljust(4) ~ '|', 'x'.rjust(4), 'x'.center(4, '*'), 'ab'.center(5, '*'), '-7'.zfill(5)
'abc'.removeprefix('a'), 'abc'.removesuffix('c'), 'abc'.removeprefix('x')
'12'.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' '.isspace(), 'A'.isupper(), 'a'.islower(), ''.isdigit(), 'é'.isalpha()
'{} {}'.format(1, 'x'), '{0}{1}{0}'.format('a', 'b'), '{name}!'.format(name='n'), '{{}}'.format()
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:+}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 5)
'{0[k]} {0.k} {1[0]}'.format({'k': 1}, [9])
'%s and %d and %.1f%%' % ('x', 3, 2.55)
'%5s|%-5s|%05d|%x|%r' % ('a', 'b', 42, 255, 'q')
'%(a)s' % {'a': 1}
'%s' % 5
'%d' % 'x'
'%s %s' % ('only',)
"%s-%s" | format(1, 2)
'o' in s, 'zz' in s, 'zz' not in s
1 in s
s < 'Z', 'a' < 'B', 'é' > 'z'
s is string, s is lower, 'abc' is lower, 'ABC' is upper, s is sequence, s is iterable, s is mapping
s | upper, s | lower, s | capitalize, s | length, s | count, s | first, s | last, s | reverse, s | list
s | replace('l', 'L'), s | replace('l', 'L', 1), 5 | replace(5, 6)
ws | trim | tojson, s | trim('Hd')
s | center(20) ~ '|'
lines | indent, lines | indent(2, true), lines | indent('> ', first=true, blank=true), '' | indent(2, true)
html | e, html | escape, html | safe, (html | e) | e
('<a>' | safe) + '<b>'
'<a>' + ('<b>' | safe)
('<a>' | safe) ~ '<b>'
'a b c d e f' | truncate(7, false, '...', 0), 'abcdefghij' | truncate(5, true, '..', 0), 'short' | truncate
'one two  three' | wordcount
'ß' | upper, 'ŉ'.upper(), 'İ'.lower() | length, 'ΟΔΟΣ'.lower()
s.foo is defined, s.split is defined, s['upper'] is defined
s.foo.bar
s['x']
s()
s.split(5)
s.split('')
""")

TEMPLATES += exprs("collection", """
list, names, mixed, dict, nested
(), (1,), (1, 2), [], {}, [[]], {'a': (1,)}
{'a': 1, 'a': 2, 1: 'x', true: 'y', none: 0, 1.5: 2}
{'k': "it's", "q": 'say "x"', 'both': "'\\""}
{'tab': '\\t', 'nul': '\\0', 'nbsp': ' ', 'zwsp': '​', 'ideographic': '　', 'emoji': '🎉'}
list[0], list[-1], list[5] is defined, list[0:2], list[::-1], list[-2:], list[5:], list[::2], list[:-1]
list['0'] is defined, list.0, nested.x.y[1].z, nested['x']['y'][0]
list[1:2] + [9], [1] * 3, (1, 2) + (3,), 2 * [0]
[1] + (2,)
list[::0]
dict.a, dict['b'], dict.zz is defined, dict.get('a'), dict.get('zz'), dict.get('zz', 5)
dict.items() | list, dict.keys() | list, dict.values() | list
dict.items(), dict.keys(), dict.values()
dict.keys() | length, dict.items() is sequence, dict.items() is iterable, 'a' in dict.keys()
'a' in dict, 'zz' in dict, 1 in list, 9 not in list, [1] in mixed, none in mixed
1 in none
{'items': 1}.items is callable, {'items': 1}['items'], {'update': 1}.update is defined
list == [3, 1, 2], (1, 2) == [1, 2], dict == {'a': 2, 'C': 3, 'b': 1}, [1, 2] < [1, 3], [1] < [1, 0]
[1, 'a'] < [1, 2]
list | sort, list | sort(reverse=true), names | sort, names | sort(case_sensitive=true), list | sort | first
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='age,name', reverse=true) | map(attribute='name') | join(' ')
mixed | sort
dict | dictsort, dict | dictsort(true), dict | dictsort(by='value', reverse=true)
names | unique | list, names | unique(true) | list, [1, 1.0, true, '1'] | unique | list
list | min, list | max, names | min, names | max(case_sensitive=true), people | max(attribute='age'), [] | max is defined
list | first, list | last, [] | first is defined, list | length, dict | length, list | reverse | list, dict | list
list | join, list | join('-'), people | join(', ', attribute='name'), dict | join(',')
list | map('string') | list, names | map('upper') | join, people | map(attribute='age') | sum, people | map(attribute='tags.0', default='-') | list
people | map(attribute='tags') | map('length') | list
names | map('replace', 'a', 'x') | list, names | map('default', 5) | list
list | map('nope') | list
list | map | list
list | select('odd') | list, list | reject('gt', 1) | list, mixed | select | list, mixed | select('string') | list
people | selectattr('age', 'equalto', 30) | map(attribute='name') | list, people | rejectattr('tags') | list
people | selectattr('tags', 'defined') | list | length, people | selectattr('name', 'in', ['Ann']) | first
list | select('nope') | list
list | select | tojson
list | select | length
list | batch(2) | list, list | batch(2, 0) | list
dict | items | list, none_such | items | list
5 | items | list
list is sequence, list is iterable, list is mapping, dict is mapping, dict is sequence, 5 is iterable, none is none
list is string, 5 is number, 5.0 is number, true is number, 5 is integer, true is integer, 5.0 is float, true is boolean
true is true, 1 is true, false is false, none is not none, none is defined, none_such is undefined
5 is eq 5, 5 is equalto(5), 5 is ne 6, 5 is gt 4, 5 is ge 5, 5 is lt 6, 5 is le 4, 5 is in [5], 5 is sameas 5
'upper' is filter, 'nope' is filter, 'odd' is test, range is callable, 5 is callable, dict.get is callable
range(3) | list, range(1, 4) | list, range(5, 0, -2) | list, range(3), range(0), range(1, 10, 3)[1], range(3) | length
range(100001)
range(1, 2, 0)
dict(a=1, b=2), dict([['x', 1]]), dict({'q': 1}, r=2)
[1, 2, 3] | tojson, dict | tojson, mixed | tojson, nested | tojson, none | tojson, uni | tojson, html | tojson
nested | tojson(indent=2), [] | tojson(indent=2), {} | tojson(indent=4), mixed | tojson(indent=1)
uni | tojson(ensure_ascii=true), dict | tojson(sort_keys=true), dict | tojson(separators=(',', ':')), [1, {'a': 2}] | tojson(indent='--')
{1: 2, true: 3, none: 4, 2.5: 5} | tojson, [1e22, 1.0, 0.1, u] | tojson
dict.items() | tojson
range(3) | tojson
{(1, 2): 3} | tojson
none_such | tojson
list.append(4)
dict.update({})
list.index(1), list.count(3), (1, 2).index(2)
list.index(99)
list | attr('count') is callable, dict | attr('a') is defined
{[]: 1}
""")

TEMPLATES += exprs("undefined", """
none_such, [none_such], none_such ~ 'x'
none_such.x
none_such['x']
none_such()
none_such + 1
'a' + none_such
none_such < 1
none_such == none_such, none_such == 1, none_such != none, not none_such, none_such or 'd', none_such and 'd'
none_such | default('d'), none_such | d('d'), empty | default('d'), empty | default('d', true), none | default('d'), z | default(1, boolean=true)
none_such | length, none_such | list, none_such | join, none_such | first is defined, none_such | upper, none_such is string
none_such is iterable, none_such is sequence, none_such is mapping, none_such is none, none_such is callable
none_such | int
none_such | dictsort
'x' in none_such
none_such in 'x'
dict.zz, dict.zz | default('d')
dict.zz.yy
none.x is defined, none.x | default('d')
none.x.y
none | length
none | list
none[0] is defined
('x' if false) is defined, ('x' if false), ('x' if true)
('x' if false).y
nested.x.nope.z is defined
5.foo is defined
5()
""")

TEMPLATES += exprs("logic", """
1 and 2, 0 and 2, 0 or 'x', '' or none, not 1, not not 1, not 1 == 2
1 if true else 2, 1 if false else 2, 1 if false else 2 if false else 3
true and false or true, (true or false) and false, True, False, None, none
i > 5 and s, i is odd and s is string, i is not odd or 'x', not i is odd
list | length > 2, s | length + 1, -5 | abs, (1, 2) | length, -i | string
dict.a + dict.b * 2 - 1
1 is none is string
i ~ s[0] + '!'
[i, s][0], {'a': 1}.a, {'a': {'b': 2}}['a'].b, (1, 2)[1]
""")

TEMPLATES += each("statement", "data", [
    "{% if i > 5 %}big{% elif i > 2 %}mid{% else %}small{% endif %}",
    "{% if none_such %}a{% elif empty %}b{% elif list %}c{% endif %}",
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}:{{ x }};{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}{% for x in none_such %}x{% else %}nothing{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ '' if loop.last else ',' }}{% else %}-{% endfor %}",
    "{% for x in list if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}{% for k in dict %}{{ k }}{% endfor %}",
    "{% for k, v in dict | dictsort %}{{ k }}{{ v }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for c in s[:3] %}[{{ c }}]{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in list %}{% for y in names %}{{ loop.index }}{% if loop.first %}{% break %}{% endif %}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
    "{% for n in tree recursive %}{{ loop.depth }}{{ loop.depth0 }}:{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
    "{% for n in tree %}{{ loop(n.c) }}{% endfor %}",
    "{% for i in list %}{% endfor %}{{ i }}",
    "{% set x = 1 %}{% for y in list %}{% set x = x + y %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1, found=false) %}{% for y in list %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}{{ ns.found }}{{ ns.zz is defined }}",
    "{% set ns = namespace(stop=false) %}{% for x in range(6) if not ns.stop %}{{ x }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns }}{{ ns.a }}{{ ns['b'] }}",
    "{% set ns = namespace(a=1) %}{{ ns.b.c }}",
    "{% set s.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}{% set (d, e) = [3, 4] %}{{ d }}{{ e }}",
    "{% set a, b = 1 %}",
    "{% set a, b = [1, 2, 3] %}",
    "{% set x %}in {{ s }}{% endset %}[{{ x }}]{% set y | upper | replace('A', 'b') %}abc{% endset %}{{ y }}",
    "{% set ns = namespace() %}{% set ns.t %}body{% endset %}{{ ns.t }}",
    "{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}{{ y }}",
    "{% if true %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% set c = 3 %}{% endwith %}{{ a is defined }}{{ c is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}aa{% endfilter %}",
    "{% raw %}{{ x }} {% if %}{# c #}{% endraw %}|{%- raw -%}  {{ y }}  {%- endraw -%}|",
    "a{# comment #}b{#- c -#} d {# multi\nline #}\ne",
    "{% generation %}gen {{ s }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=5, a=4) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1) | int }}{% endif %}{% endmacro %}{{ fact(5) }}",
    "{% macro outer() %}[{{ caller() }}]{% endmacro %}{% call outer() %}inner {{ s }}{% endcall %}",
    "{% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, n) each(list) %}{{ n }}:{{ x }};{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ m() }}{% set y = 2 %}{{ m() }}",
    "{% macro m(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ m(1) }}{{ x is defined }}{{ m.name }}",
    "{% for q in list %}{% macro m() %}{{ q }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(3) }}{{ m(3, 4) }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% set f = dict.get %}{{ f('a') }}{% set args = [1, 5] %}{{ range(*args) | list }}{{ dict(**{'z': 1}) }}",
    "{{ raise_exception('stop: ' ~ i) }}",
    "{% if false %}{{ raise_exception('no') }}{% endif %}ok",
    "{{ strftime_now('%d %B %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %a %A %b %j %y %I %p %%') }} {{ strftime_now('%-d/%-m %e') }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}",
    "{% set j = joiner('; ') %}{% for x in list %}{{ j() }}{{ x }}{% endfor %}",
    "{% set range = 5 %}{{ range }}{% set s = 'shadow' %}{{ s }}",
    "{{ loop is defined }}",
    "{% for x in list %}{{ loop }}{% break %}{% endfor %}".replace("{{ loop }}", "{{ loop.foo is defined }}"),
    "{{ [1, 2,] }}{{ {'a': 1,} }}{{ dict(a=1,) }}{{ range(3,) | list }}",
    "{% set g = list | select('odd') %}{{ g | list }}{{ g | list }}{% if g %}t{% endif %}",
    "{% set r = list | reverse %}{{ r | first }}{{ r | list }}",
    "{{ s | nope }}",
    "{{ s is nope }}",
    "{% if false %}{{ s | nope }}{% endif %}ok",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% nope %}",
    "{% if x %}",
    "{% endif %}",
    "{% for x in y %}{% endif %}",
    "{{ x",
    "{% if x",
    "{{ 'abc }}",
    "{# open",
    "{% raw %}open",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ [1} }}",
    "{{ }}",
    "{{ 1 + }}",
    "{{ x..y }}",
    "{{ @ }}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% break %}",
    "{{ f(a=1, 2) }}",
    "{% call 5 %}{% endcall %}",
    "{{ {'a': {'b': {}}} }}{{ {'x':{'y':1}}}}",
    "{{ 1 }}}} {{ '}}' }} {% if '%}' %}x{% endif %}",
    "{ { {{ '{{' }} {% %}".replace("{% %}", "% } #}"),
    "{{ i if i else 'x' }}{{ (i) }}{{ ((i)) }}{{ i|string|length }}",
    "{%if i%}x{%endif%}{%-if i-%} y {%-endif-%}",
])

WHITESPACE = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}  \n  b\n  {% endif %}\n  c",
    "a\n  {%- if true %}\n  b\n  {%- endif %}\n  c",
    "a\n  {% if true -%}\n  b\n  {% endif -%}\n  c",
    "a\n  {%+ if true %}\n  b\n  {%+ endif +%}\n  c",
    "a  {% if true %}  b  {% endif %}  c",
    "a\n\t {{ 1 }}\n\t {{- 2 }}\n {{ 3 -}}\n d",
    "  {# c #}\n  x {# d #}\n  {#- e -#}\n  y",
    "\n\n{% set x = 1 %}\n\n{{ x }}\n\n",
    "x\n",
    "x\n\n",
    "",
    "\n",
    "{{ 1 }}\n",
    "{% if true %}{% endif %}\n\nx",
    "a\r\n{% if true %}\r\nb\r{% endif %}\r\nc\r\n",
    "  {% for x in [1, 2] %}\n    {{ x }}\n  {% endfor %}\n",
    "  {% for x in [1, 2] -%}\n    {{ x }}\n  {%- endfor %}\n",
    "{% if true %}\n  {% if true %}\n    x\n  {% endif %}\n{% endif %}\n",
    "a {%- raw %}  b  {% endraw -%}  c",
    "a\n   {% raw %}\n  b\n   {% endraw %}\n  c",
    "a\u00a0\u3000{%- if true -%}\u2003b\u00a0{% endif %}",
    "{#- a -#}\n\n{%- set a = 1 -%}\n\n{{- a -}}\n\n",
    "x {{ 'a\nb' }} {{ 'a\\\nb' }}",
    "{% set x = 1 -%}  \n  {%- set y = 2 %}  \n{{ x }}{{ y }}",
    "  {%+ if true +%}\n  x{%+ endif +%}\n",
    "{{-1}}{{+1}}{{ - 1 }}",
]
TEMPLATES += each("whitespace", "data", WHITESPACE)

TEMPLATES += each("chat", "chat", [
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message.role + '|>\\n' }}{{ message.content or '' }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "{%- for m in messages %}{%- if m.tool_calls is defined and m.tool_calls %}{%- for c in m.tool_calls %}{{ {'name': c.name, 'arguments': c.arguments} | tojson }}{{ c.arguments }}{%- endfor %}{%- else %}{{ m.content | trim }}{%- endif %}{%- endfor %}",
    "{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ sys }}{{ rest | length }}{{ messages | last }}",
    "{% for m in messages %}{{ m.items is callable }}{{ m['items'] is callable }}{{ m.get('n', 0) }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{{ m.content }}{% endfor %}{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | list }}",
    "{{ messages[1].content }}{{ messages[1] }}{{ messages[2] }}",
    "{% if tools %}t{% elif tools is none %}none{% endif %}{{ tools is iterable }}{{ tools is not none and tools }}",
    "{% for m in messages %}{{ m.content + '!' }}{% endfor %}",
    "{% if (messages | length) % 2 != 0 %}{{ raise_exception('odd') }}{% else %}{{ raise_exception('even: ' + messages | length | string) }}{% endif %}",
    "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% set i = messages | length - 1 - loop.index0 %}{% if m.role == 'user' and ns.last == -1 %}{% set ns.last = i %}{% endif %}{% endfor %}{{ ns.last }}",
])
