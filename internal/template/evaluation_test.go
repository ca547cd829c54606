package template

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// evaluationCase is the template of one upstream test in our JSON; what it must
// answer is read from the upstream test.
type evaluationCase struct {
	params                map[string]any
	functions, resources  string
	vars, outs, asserts   map[string]string
	live                  live
	ask                   map[string]any
	parametersFile, types string
	inputs                map[string]string
}

const lambdaDogs = `createArray(createObject('name','Evie','age',5,'interests',createArray('Ball','Frisbee')),createObject('name','Casper','age',3,'interests',createArray('Other dogs')),createObject('name','Indy','age',2,'interests',createArray('Butter')),createObject('name','Kira','age',8,'interests',createArray('Rubs')))`

func recordMap(pairs ...string) string {
	var items []string
	for i := 0; i < len(pairs); i += 2 {
		items = append(items, fmt.Sprintf("createObject('property1','%s','property2',%s)", pairs[i], pairs[i+1]))
	}
	return "createArray(" + strings.Join(items, ",") + ")"
}

const grouped = `createArray(createObject('type','a','value',123),createObject('type','b','value',456),createObject('type','a','value',789))`

// evaluationCases are by the name of the upstream test.
var evaluationCases = map[string]evaluationCase{
	"Basic_arithmetic_expressions_are_evaluated_successfully": {
		vars: map[string]string{"sum": "add(1,3)", "mult": "mul(variables('sum'),5)", "modulo": "mod(variables('mult'),7)", "div": "div(variables('modulo'),11)", "sub": "sub(variables('div'),13)"},
		outs: map[string]string{"sum": "variables('sum')", "mult": "variables('mult')", "modulo": "variables('modulo')", "div": "variables('div')", "sub": "variables('sub')"}},
	"String_expressions_are_evaluated_successfully": {
		outs: map[string]string{"literal": "'hello!'",
			"interp":    "format('>{0}<>{1}<>{2}<>{3}<>{4}<', false(), 12948, 'hello!', createObject('a','b','!c',2), createArray(true(),2893,'abc'))",
			"escapes":   "'\r\n\t\\''${}'",
			"multiline": "'these escapes\n  are not\n  evaluated:\n\\r\\n\\t\\\\\\''\\${}\n'"}},
	"Multiline_interpolation_is_evaluated_successfully": {
		outs: map[string]string{"multiline": "format('>{0}<\n>${1}<\n', 12345, 12345)", "multiline2": "format('>${{intVal}}<\n>{0}<\n', 12345)"}},
	"ResourceId_expressions_are_evaluated_successfully": {
		outs: map[string]string{
			"resource1Id":   "resourceId('My.Rp/parent/child', split(format('{0}/{1}','myParent','myChild'),'/')[0], split(format('{0}/{1}','myParent','myChild'),'/')[1])",
			"resource2Id":   "resourceId('customRg','My.Rp/parent/child','myParent','myChild')",
			"resource3Id":   "resourceId('2e518a80-f860-4467-a00e-d81aaf1ff42e','customRg','My.Rp/parent/child','myParent','myChild')",
			"resource4Id":   "tenantResourceId('My.Rp/parent/child','myParent','myChild')",
			"resource5Id":   "subscriptionResourceId('My.Rp/parent/child','myParent','myChild')",
			"resource6Id":   "subscriptionResourceId('2e518a80-f860-4467-a00e-d81aaf1ff42e','My.Rp/parent/child','myParent','myChild')",
			"resource7Id":   "managementGroupResourceId('2e518a80-f860-4467-a00e-d81aaf1ff42e','My.Rp/parent/child','myParent','myChild')",
			"resource8Id":   "extensionResourceId(tenantResourceId('My.Rp/parent/child','myParent','myChild'),'My.ExtensionRp/parent/child','myParent','myChild')",
			"resource1Name": "format('{0}/{1}','myParent','myChild')", "resource1ApiVersion": "'2020-01-01'", "resource1Type": "'My.Rp/parent/child'"}},
	"Comparisons_are_evaluated_correctly": {
		outs: map[string]string{"less": "less(123,456)", "lessOrEquals": "lessOrEquals(123,456)", "greater": "greater(123,456)", "greaterOrEquals": "greaterOrEquals(123,456)",
			"equals": "equals(123,456)", "not": "not(true())", "and": "and(true(),false())", "or": "or(true(),false())", "coalesce": "coalesce(null(),123)"}},
	"Resource_property_access_works": {
		resources: `"testRes":{"type":"My.Rp/res1","apiVersion":"2020-01-01","name":"testRes","properties":{"abc":"test!!!"}}`,
		live:      live{"testRes": {"abc": "test!!!"}},
		outs:      map[string]string{"abcVal": "reference('testRes').abc"}},
	"Existing_resource_property_access_works": {
		ask:  map[string]any{"/subscriptions/87d64d6d-6d17-4ad7-b507-16d9bc498781/resourceGroups/testRg/providers/My.Rp/res1/testRes": map[string]any{"abc": "test!!!"}},
		outs: map[string]string{"abcVal": "reference(resourceId('My.Rp/res1','testRes'),'2020-01-01').abc"}},
	"Items_function_evaluation_works": {
		params: map[string]any{"inputObj": `{"ghiKey":"ghiValue","defKey":"defValue","abcKey":"abcValue","123Key":"123Value","GHIKey":"GHIValue","DEFKey":"DEFValue","ABCKey":"ABCValue","456Key":"456Value"}`},
		outs: map[string]string{"inputObjKeys": "map(items(json(parameters('inputObj'))),lambda('i',lambdaVariables('i').key))",
			"inputObjValues": "map(items(json(parameters('inputObj'))),lambda('i',lambdaVariables('i').value))"}},
	"Join_function_evaluation_works": {
		outs: map[string]string{"joined1": "join(createArray('abc','def','ghi'),'')", "joined2": "join(createArray('abc','def','ghi'),',')", "joined3": "join(createArray('I','love','Bicep'),' ')"}},
	"indexof_contains_function_evaluation_works": {
		params: map[string]any{"inputString": "FOOBAR", "inputArray": []any{"FOO", "BAR"}},
		outs: map[string]string{
			"strIdxFooLC": "indexOf(parameters('inputString'),'foo')", "strIdxFooUC": "indexOf(parameters('inputString'),'FOO')",
			"strIdxBarLC": "indexOf(parameters('inputString'),'bar')", "strIdxBarUC": "indexOf(parameters('inputString'),'BAR')",
			"containsStrFooLC": "contains(parameters('inputString'),'foo')", "containsStrFooUC": "contains(parameters('inputString'),'FOO')",
			"containsStrBarLC": "contains(parameters('inputString'),'bar')", "containsStrBarUC": "contains(parameters('inputString'),'BAR')",
			"arrIdxFooLC": "indexOf(parameters('inputArray'),'foo')", "arrIdxFooUC": "indexOf(parameters('inputArray'),'FOO')",
			"arrIdxBarLC": "indexOf(parameters('inputArray'),'bar')", "arrIdxBarUC": "indexOf(parameters('inputArray'),'BAR')",
			"arrIdxfalse": "indexOf(parameters('inputArray'),false())", "arrIdx123": "indexOf(parameters('inputArray'),123)",
			"containsArrFooLC": "contains(parameters('inputArray'),'foo')", "containsArrFooUC": "contains(parameters('inputArray'),'FOO')",
			"containsArrBarLC": "contains(parameters('inputArray'),'bar')", "containsArrBarUC": "contains(parameters('inputArray'),'BAR')",
			"containsArrfalse": "contains(parameters('inputArray'),false())", "containsArr123": "contains(parameters('inputArray'),123)"}},
	"List_comprehension_function_evaluation_works": {
		params: map[string]any{"doggos": []any{"Evie", "Casper", "Indy", "Kira"}, "numbers": []any{0, 1, 2, 3}},
		vars: map[string]string{
			"sayHello":                "map(parameters('doggos'),lambda('i',format('Hello {0}!',lambdaVariables('i'))))",
			"isEven":                  "filter(parameters('numbers'),lambda('i',equals(0,mod(lambdaVariables('i'),2))))",
			"evenDoggosNestedLambdas": "map(filter(parameters('numbers'),lambda('i',contains(filter(parameters('numbers'),lambda('j',equals(0,mod(lambdaVariables('j'),2)))),lambdaVariables('i')))),lambda('x',parameters('doggos')[lambdaVariables('x')]))",
			"flattenedArrayOfArrays":  "flatten(createArray(createArray(0,1),createArray(2,3),createArray(4,5)))",
			"flattenedEmptyArray":     "flatten(createArray())",
			"mapSayHi":                "map(createArray('abc','def','ghi'),lambda('foo',format('Hi {0}!',lambdaVariables('foo'))))",
			"mapEmpty":                "map(createArray(),lambda('foo',format('Hi {0}!',lambdaVariables('foo'))))",
			"mapObject":               "map(range(0,length(parameters('doggos'))),lambda('i',createObject('i',lambdaVariables('i'),'doggo',parameters('doggos')[lambdaVariables('i')],'greeting',format('Ahoy, {0}!',parameters('doggos')[lambdaVariables('i')]))))",
			"mapArray":                "flatten(map(range(1,3),lambda('i',createArray(mul(lambdaVariables('i'),2),add(mul(lambdaVariables('i'),2),1)))))",
			"mapMultiLineArray":       "flatten(map(range(1,3),lambda('i',createArray(mul(lambdaVariables('i'),3),add(mul(lambdaVariables('i'),3),1),add(mul(lambdaVariables('i'),3),2)))))",
			"filterEqualityCheck":     "filter(createArray('abc','def','ghi'),lambda('foo',equals('def',lambdaVariables('foo'))))",
			"filterEmpty":             "filter(createArray(),lambda('foo',equals('def',lambdaVariables('foo'))))",
			"sortNumeric":             "sort(createArray(8,3,10,-13,5),lambda('x','y',less(lambdaVariables('x'),lambdaVariables('y'))))",
			"sortAlpha":               "sort(createArray('ghi','abc','def'),lambda('x','y',less(lambdaVariables('x'),lambdaVariables('y'))))",
			"sortAlphaReverse":        "sort(createArray('ghi','abc','def'),lambda('x','y',greater(lambdaVariables('x'),lambdaVariables('y'))))",
			"sortByObjectKey":         "sort(createArray(createObject('key',124,'name','Second'),createObject('key',298,'name','Third'),createObject('key',24,'name','First'),createObject('key',1232,'name','Fourth')),lambda('x','y',less(int(lambdaVariables('x').key),int(lambdaVariables('y').key))))",
			"sortEmpty":               "sort(createArray(),lambda('x','y',less(int(lambdaVariables('x')),int(lambdaVariables('y')))))",
			"reduceStringConcat":      "reduce(createArray('abc','def','ghi'),'',lambda('cur','next',concat(lambdaVariables('cur'),lambdaVariables('next'))))",
			"reduceFactorial":         "reduce(range(1,5),1,lambda('cur','next',mul(lambdaVariables('cur'),lambdaVariables('next'))))",
			"reduceObjectUnion":       "reduce(createArray(createObject('foo',123),createObject('bar',456),createObject('baz',789)),createObject(),lambda('cur','next',union(lambdaVariables('cur'),lambdaVariables('next'))))",
			"reduceEmpty":             "reduce(createArray(),0,lambda('cur','next',lambdaVariables('cur')))",
			"objectMap":               "toObject(createArray(123,456,789),lambda('i',format('{0}',div(lambdaVariables('i'),100))))",
			"objectMap2":              "toObject(parameters('numbers'),lambda('i',format('{0}',lambdaVariables('i'))),lambda('i',createObject('isEven',equals(mod(lambdaVariables('i'),2),0),'isGreaterThan2',greater(lambdaVariables('i'),2))))",
			"objectMap3":              "toObject(variables('sortByObjectKey'),lambda('x',lambdaVariables('x').name))"}},
	"Issue8782": {
		outs: map[string]string{"testMap": "map(" + recordMap("test", "1", "dev", "2", "test", "0", "prod", "1", "prod", "0", "dev", "0", "test", "0") +
			",lambda('r',createObject('result',if(greater(lambdaVariables('r').property2,0),lambdaVariables('r').property1,if(equals(toLower(lambdaVariables('r').property1),toLower('test')),'test!','notTest!')))))"}},
	"Issue8782_2": {
		params: map[string]any{"testObject": map[string]any{"a": true, "b": false}},
		outs: map[string]string{"output1": "map(items(parameters('testObject')),lambda('s',if(equals(1,2),createArray('yes'),createArray('no'))))",
			"output2": "map(items(parameters('testObject')),lambda('s',if(equals(lambdaVariables('s').key,'a'),createArray('yes'),createArray('no'))))"}},
	"Issue8798": {outs: map[string]string{"iDogs": "filter(" + lambdaDogs + ",lambda('d',or(contains(lambdaVariables('d').name,'C'),contains(lambdaVariables('d').name,'i'))))"}},
	"Module_with_unknown_resourcetype_as_parameter_and_output_has_diagnostics": {
		params: map[string]any{"useMod1": true},
		resources: `"mod1":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"test","properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"parameters":{"bar":{"value":"abc"}},
		  "template":{"contentVersion":"1.0.0.0","parameters":{"bar":{"type":"string"}},"resources":[],"outputs":{"foo":{"type":"object","value":{"bar":"[parameters('bar')]"}}}}}},
		 "mod2":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"test2","properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"parameters":{"bar":{"value":"def"}},
		  "template":{"contentVersion":"1.0.0.0","parameters":{"bar":{"type":"string"}},"resources":[],"outputs":{"foo":{"type":"object","value":{"bar":"[parameters('bar')]"}}}}}}`,
		outs: map[string]string{"test1": "reference('mod1').outputs.foo.value.bar", "test2": "reference('mod2').outputs.foo.value.bar",
			"test3": "if(parameters('useMod1'),reference('mod1'),reference('mod2')).outputs.foo.value.bar",
			"test4": "if(parameters('useMod1'),reference('mod1'),reference('mod2')).outputs.foo.value.bar",
			"test5": "if(true(),if(parameters('useMod1'),reference('mod1'),reference('mod2')),reference('mod2')).outputs.foo.value.bar"}},
	"Az_getsecret_functions_are_evaluated_successfully": {
		params: map[string]any{"param1": map[string]any{"reference": "param1"}},
		outs:   map[string]string{"output1": "parameters('param1')", "output2": "union(parameters('param1'),createObject('reference','param2'))"}},
	"Safe_dereferences_are_evaluated_successfully": {
		resources: `"testRes":{"type":"My.Rp/res1","apiVersion":"2020-01-01","name":"testRes","properties":{}}`,
		live:      live{"testRes": {"foo": []any{map[string]any{"bar": "baz"}}}},
		outs: map[string]string{"properties": "createObject('exists',tryGet(reference('testRes','2020-01-01','full'),'properties','foo',0,'bar'),'doesntExist',tryGet(reference('testRes'),'fizz',0,'bar')," +
			"'existsArrayAccess',tryGet(reference('testRes').foo,0,'bar'),'doesntExistArrayAccess',tryGet(reference('testRes').foo,10,'bar'))"}},
	"Assertions_are_evaluated_correctly": {
		params:  map[string]any{"accountName": "asdgkbauskfabdsfibasdogbnasdognbaosdingoaisdngoisdangoinbdsaoigbsadoibgodsiabgos", "environment": "dev", "location": "westus"},
		asserts: map[string]string{"a1": "less(length(parameters('accountName')),24)", "a2": "contains(parameters('location'),'us')", "a3": "equals(parameters('environment'),'dev')"}},
	"Type_syntax_is_evaluated_correctly": {
		types: `"foo":{"type":"string","nullable":true}`,
		outs:  map[string]string{"foo": "coalesce(parameters('foo'),'not specified')"}},
	"Functions_are_evaluated_correctly": {
		functions: `[{"namespace":"__bicep","members":{
		 "joinWithSpace":{"parameters":[{"name":"values","type":"array","items":{"type":"string"}}],"output":{"type":"string","value":"[join(parameters('values'),' ')]"}},
		 "greet":{"parameters":[{"name":"names","type":"array","items":{"type":"string"}}],"output":{"type":"string","value":"[format('Hi, {0}!',__bicep.joinWithSpace(parameters('names')))]"}},
		 "replaceMultiple":{"parameters":[{"name":"value","type":"string"},{"name":"input","type":"object"}],"output":{"type":"string","value":"[reduce(map(items(parameters('input')),lambda('i',createObject('key',lambdaVariables('i').key,'value',lambdaVariables('i').value,'replaced',''))),createObject('replaced',parameters('value')),lambda('cur','next',createObject('replaced',replace(lambdaVariables('cur').replaced,lambdaVariables('next').key,lambdaVariables('next').value)))).replaced]"}}}}]`,
		outs: map[string]string{"sayHiWithComposition": "__bicep.greet(createArray('Anthony','Martin'))",
			"sayHiWithLambdas": "__bicep.replaceMultiple('Hi, $firstName $lastName!',createObject('$firstName','Anthony','$lastName','Martin'))"}},
	"New_functions_are_evaluated_correctly": {
		functions: `[{"namespace":"__bicep","members":{"isEven":{"parameters":[{"name":"i","type":"int"}],"output":{"type":"bool","value":"[equals(mod(parameters('i'),2),0)]"}}}}]`,
		outs: map[string]string{
			"sayHello":              "map(createArray('Evie','Casper','Lady Lechuga'),lambda('dog','i',format('{0} {1}!',if(__bicep.isEven(lambdaVariables('i')),'Hi','Ahoy'),lambdaVariables('dog'))))",
			"evenEntries":           "filter(createArray('a','b','c','d'),lambda('item','i',__bicep.isEven(lambdaVariables('i'))))",
			"concatIfEven":          "reduce(createArray('abc','def','ghi'),'',lambda('cur','next','i',if(__bicep.isEven(lambdaVariables('i')),concat(lambdaVariables('cur'),lambdaVariables('next')),lambdaVariables('cur'))))",
			"mapValuesTest":         "mapValues(createObject('a',123,'b',456),lambda('val',mul(lambdaVariables('val'),2)))",
			"objectKeysTest":        "objectKeys(createObject('a',123,'b',456))",
			"shallowMergeTest":      "shallowMerge(createArray(createObject('a',123),createObject('b',456)))",
			"groupByTest":           "groupBy(" + grouped + ",lambda('arg',lambdaVariables('arg').type))",
			"groupByWithValMapTest": "groupBy(" + grouped + ",lambda('arg',lambdaVariables('arg').type),lambda('arg',lambdaVariables('arg').value))"}},
	"ExternalInput_functions_are_evaluated_correctly": {
		parametersFile: `{"contentVersion":"1.0.0.0","parameters":{"input":{"expression":"[int(externalInputs('a'))]"},"input2":{"expression":"[string(externalInputs('b'))]"},
		 "input3":{"expression":"[format('{0}_combined_with_{1}',externalInputs('c'),externalInputs('d'))]"},"input4":{"expression":"[json(externalInputs('e'))]"},"input5":{"expression":"[bool(externalInputs('f'))]"},
		 "input6":{"expression":"[int(externalInputs('a'))]"},"input7":{"expression":"[json(externalInputs('g'))]"},"nestedObj":{"expression":"[createObject('foo',externalInputs('a'))]"}},
		 "externalInputDefinitions":{"a":{"kind":"custom.binding","config":"input"},"b":{"kind":"custom.uriForPath","config":{"path":"/path/to/file"}},"c":{"kind":"custom.binding","config":"__BINDING__"},
		  "d":{"kind":"custom.binding","config":"__ANOTHER_BINDING__"},"e":{"kind":"custom.binding","config":"objectInput"},"f":{"kind":"sys.cli"},"g":{"kind":"custom.binding","config":"input7"}}}`,
		inputs: map[string]string{"a": "123", "b": "https://example.com?sas=token", "c": "test1", "d": "test2", "e": `{ "key1": "value1", "key2": "value2" }`, "f": "false", "g": `{ "foo": "bar", "bar": 123 }`},
		outs: map[string]string{"output": "parameters('input')", "output2": "parameters('input2')", "output3": "parameters('input3')", "output4": "parameters('input4')", "output5": "parameters('input5')",
			"output6": "parameters('input6')", "output7": "parameters('input7')", "nestedObj": "parameters('nestedObj')"}},
}

// asking is a live state with answers to questions by id.
type asking struct {
	live
	made map[*Resource]map[string]any
	ask  map[string]any
}

func (a asking) Ask(q Question) (any, error) {
	if q.Resource != nil {
		props, err := a.Reference(q.Resource)
		return map[string]any{"properties": props}, err
	}
	if v, ok := a.ask[q.ID]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("no answer for %s", q.ID)
}

func (a asking) Reference(r *Resource) (map[string]any, error) {
	if v, ok := a.made[r]; ok {
		return v, nil
	}
	return a.live.Reference(r)
}

// deployed evaluates the nested deployments of a plan, as an engine does
// before anything reads them.
func deployed(t *testing.T, p *Plan, rt asking) map[*Resource]map[string]any {
	t.Helper()
	made := map[*Resource]map[string]any{}
	for _, r := range p.Resources {
		if !r.Deployment {
			continue
		}
		n, err := p.Nested(r, rt)
		if err != nil {
			t.Fatal(err)
		}
		outs, err := n.Outputs(rt)
		if err != nil {
			t.Fatal(err)
		}
		public, _ := OutputsValue(outs)
		made[r] = map[string]any{"outputs": public}
	}
	return made
}

func (c evaluationCase) evaluate(t *testing.T) map[string]any {
	t.Helper()
	section := func(m map[string]string, wrap string) string {
		var parts []string
		for k, v := range m {
			parts = append(parts, fmt.Sprintf("%q:"+wrap, k, toJSON("["+v+"]")))
		}
		return strings.Join(parts, ",")
	}
	values := c.params
	if c.parametersFile != "" {
		f, err := ParseParameters([]byte(c.parametersFile))
		if err != nil {
			t.Fatal(err)
		}
		if values, _, err = f.Values(ParameterSources{Input: func(name string, _ InputDefinition) (any, error) { return c.inputs[name], nil }}); err != nil {
			t.Fatal(err)
		}
	}
	params := c.types
	for name := range values {
		if params != "" {
			params += ","
		}
		params += fmt.Sprintf("%q:{}", name)
	}
	functions := c.functions
	if functions == "" {
		functions = "[]"
	}
	text := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","functions":` + functions + `,"parameters":{` + params + `},"variables":{` + section(c.vars, "%s") +
		`},"resources":{` + c.resources + `},"outputs":{` + section(c.outs, `{"type":"object","value":{"value":%s}}`) + `},"asserts":{` + section(c.asserts, "%s") + `}}`
	tpl, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := tpl.Plan(Options{Parameters: values, Deployment: "main", At: "/subscriptions/87d64d6d-6d17-4ad7-b507-16d9bc498781/resourceGroups/testRg"})
	if err != nil {
		t.Fatal(err)
	}
	rt := asking{live: c.live, ask: c.ask}
	rt.made = deployed(t, p, rt)
	got := map[string]any{"languageVersion": "2.0"}
	outs, err := p.Outputs(rt)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outs {
		got["outputs."+o.Name] = o.Value
	}
	for name := range c.vars {
		v, err := (&evaluator{p: p}).variable(name)
		if err != nil {
			t.Fatal(err)
		}
		got["variables."+name] = Export(v)
	}
	list, err := p.Asserts(rt)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		got["asserts."+a.Name] = a.Holds
	}
	return got
}

// TestFunctions_S41_upstream_evaluation holds our evaluation to the values
// that the upstream evaluation tests assert, read from the checkout.
func TestFunctions_S41_upstream_evaluation(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout(t), "src/Bicep.Core.IntegrationTests/EvaluationTests.cs"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, part := range regexp.MustCompile(`(?m)^    public (?:async Task|void) `).Split(string(text), -1)[1:] {
		name, body, _ := strings.Cut(part, "(")
		asserted := assertions(t, body)
		if len(asserted) == 0 {
			continue
		}
		c, ok := evaluationCases[name]
		if !ok {
			t.Errorf("%s is not among our cases: it asserts %d values", name, len(asserted))
			continue
		}
		t.Run(name, func(t *testing.T) {
			got := c.evaluate(t)
			for _, a := range asserted {
				v := dig(got, a.path)
				if diff := cmp.Diff(a.want, v); diff != "" {
					t.Errorf("%s (-upstream +ours):\n%s", a.path, diff)
				}
				total++
			}
		})
	}
	t.Logf("%d asserted values agree or are reported", total)
	if total < 90 {
		t.Errorf("only %d asserted values were found in the checkout", total)
	}
}

func dig(got map[string]any, path string) any {
	parts := strings.Split(path, ".")
	if len(parts) == 1 {
		return got[path]
	}
	v := got[parts[0]+"."+parts[1]]
	for _, key := range parts[2:] {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

type assertion struct {
	path string
	want any
}

// assertions reads HaveValueAtPath and HaveJsonAtPath of a C# method.
func assertions(t *testing.T, body string) []assertion {
	t.Helper()
	var out []assertion
	constants := map[string]string{}
	for _, m := range regexp.MustCompile(`var (\w+) = "([^"]*)";`).FindAllStringSubmatch(body, -1) {
		constants[m[1]] = m[2]
	}
	re := regexp.MustCompile(`evaluated\.Should\(\)\.Have(?:Value|Json)AtPath\("\$\.([^"]+)", `)
	for _, at := range re.FindAllStringSubmatchIndex(body, -1) {
		path := regexp.MustCompile(`\['(\w+)'\]`).ReplaceAllString(body[at[2]:at[3]], ".$1")
		s := &sharp{text: body[at[1]:], constants: constants}
		want, err := s.value()
		if err != nil {
			t.Errorf("the value asserted for %s cannot be read: %v", path, err)
			continue
		}
		out = append(out, assertion{path, want})
	}
	return out
}

// sharp reads the literals of C# that the assertions use.
type sharp struct {
	text      string
	constants map[string]string
}

func (s *sharp) skip() { s.text = strings.TrimLeft(s.text, " \t\r\n") }

func (s *sharp) eat(p string) bool {
	s.skip()
	if strings.HasPrefix(s.text, p) {
		s.text = s.text[len(p):]
		return true
	}
	return false
}

func (s *sharp) value() (any, error) {
	s.skip()
	switch {
	case s.eat("JValue.CreateNull()"):
		return nil, nil
	case s.eat("new JValue("), s.eat("JToken.Parse("):
		v, err := s.value()
		s.eat(")")
		return v, err
	case s.eat("new JArray"):
		s.eat("{")
		list := []any{}
		for !s.eat("}") {
			v, err := s.value()
			if err != nil {
				return nil, err
			}
			list = append(list, v)
			s.eat(",")
		}
		return list, nil
	case s.eat("new JObject"):
		s.eat("{")
		m := map[string]any{}
		for !s.eat("}") {
			if !s.eat(`["`) {
				return nil, fmt.Errorf("at %.30q", s.text)
			}
			key, rest, _ := strings.Cut(s.text, `"] = `)
			s.text = rest
			v, err := s.value()
			if err != nil {
				return nil, err
			}
			m[key] = v
			s.eat(",")
		}
		return m, nil
	case s.eat(`"""`):
		raw, rest, _ := strings.Cut(s.text, `"""`)
		s.text = rest
		return parsed(raw)
	case s.eat(`@"`):
		var b strings.Builder
		for {
			i := strings.IndexByte(s.text, '"')
			b.WriteString(s.text[:i])
			s.text = s.text[i+1:]
			if !strings.HasPrefix(s.text, `"`) {
				return parsed(b.String())
			}
			b.WriteByte('"')
			s.text = s.text[1:]
		}
	case s.eat(`$"`):
		raw, rest, _ := strings.Cut(s.text, `"`)
		s.text = rest
		for k, v := range s.constants {
			raw = strings.ReplaceAll(raw, "{"+k+"}", v)
		}
		return raw, nil
	case strings.HasPrefix(s.text, `"`):
		end := 1
		for s.text[end] != '"' {
			if s.text[end] == '\\' {
				end++
			}
			end++
		}
		v, err := strconv.Unquote(s.text[:end+1])
		s.text = s.text[end+1:]
		return v, err
	case s.eat("true"):
		return true, nil
	case s.eat("false"):
		return false, nil
	}
	m := regexp.MustCompile(`^-?\d+`).FindString(s.text)
	s.text = s.text[len(m):]
	return strconv.ParseInt(m, 10, 64)
}

func parsed(raw string) (any, error) {
	var v any
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return nil, err
	}
	x, err := Import(v)
	return Export(x), err
}

// TestFunctions_S41_upstream_literals holds functions to the upstream table of
// calls with literal arguments and results.
func TestFunctions_S41_upstream_literals(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout(t), "src/Bicep.Core.UnitTests/TypeSystem/FunctionResolverTests.cs"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "IEnumerable<object[]> GetLiteralTransformations()")
	rows := regexp.MustCompile(`CreateRow\((.+)\),\n`).FindAllStringSubmatch(table, -1)
	if len(rows) < 40 {
		t.Fatalf("only %d rows found", len(rows))
	}
	for _, row := range rows {
		// Arrays are new[] { … } and new object[] { … }, Array.Empty<string>().
		s := regexp.MustCompile(`new ?(object)?\[\] \{`).ReplaceAllString(row[1], "new JArray {")
		s = strings.ReplaceAll(s, "Array.Empty<string>()", "new JArray { }")
		s = regexp.MustCompile(`^null,`).ReplaceAllString(s, "JValue.CreateNull(),")
		p := &sharp{text: s}
		var parts []any
		for p.skip(); p.text != ""; p.eat(",") {
			v, err := p.value()
			if err != nil {
				t.Fatalf("%s: %v", row[1], err)
			}
			parts = append(parts, v)
		}
		args := parts[2:]
		// C# unpacks a single array argument into params object[]: one
		// array around stands for the array itself.
		if len(args) == 1 {
			if outer, ok := args[0].([]any); ok && len(outer) == 1 {
				if _, ok := outer[0].([]any); ok {
					args = outer
				}
			} else if ok {
				args = []any{outer}
			}
		}
		call := parts[1].(string) + "("
		for i, a := range args {
			if i > 0 {
				call += ","
			}
			call += "json('" + strings.ReplaceAll(toJSON(a), "'", "''") + "')"
		}
		got, err := evaluate(t, "["+call+")]")
		if err != nil {
			t.Errorf("%s: %v", row[1], err)
			continue
		}
		if diff := cmp.Diff(parts[0], got); diff != "" {
			t.Errorf("%s (-upstream +ours):\n%s", row[1], diff)
		}
	}
	t.Logf("%d calls agree or are reported", len(rows))
}
