-- How one event of a settled turn ends: what agent.settle passes between its steps.
alter type agent.verdict rename to ending;
